"""A shop whose orders and events can never disagree: both are written in one transaction."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import CheckConstraint, make_url, update
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import penstock

# The log lives in the shop's own database; SQLAlchemy wants to know the driver, too.
url = make_url(os.environ.get("PENSTOCK_URL", "sqlite:///penstock.db"))
DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg"}

log = penstock.open(url.render_as_string(hide_password=False))
engine = create_async_engine(url.set(drivername=DRIVERS[url.drivername]))
new_session = async_sessionmaker(engine, expire_on_commit=False)


class Table(DeclarativeBase):
    """What the shop stores."""


class Product(Table):
    __tablename__ = "products"
    name: Mapped[str] = mapped_column(primary_key=True)
    in_stock: Mapped[int] = mapped_column(CheckConstraint("in_stock >= 0"))


class Order(Table):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    product: Mapped[str]
    count: Mapped[int]


class NewOrder(BaseModel):
    customer: str
    product: str
    count: int = Field(gt=0)


@asynccontextmanager
async def open_shop(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Table.metadata.create_all)
    async with new_session.begin() as session:
        if await session.get(Product, "teapot") is None:
            session.add(Product(name="teapot", in_stock=10))
    yield
    await engine.dispose()
    log.close()


app = FastAPI(lifespan=open_shop)


@app.post("/orders", status_code=201)
async def place_order(new: NewOrder) -> dict[str, int]:
    async with new_session.begin() as session:  # commits at the end; an exception rolls all of it back
        order = Order(**new.model_dump())
        session.add(order)
        await session.flush()  # the database gives the order its number
        event = {"id": order.id, **new.model_dump()}
        await log.append_async("orders", event, type="order.created", ordering_key=new.customer, connection=session)
        left = await session.scalar(
            update(Product)
            .where(Product.name == new.product, Product.in_stock >= new.count)
            .values(in_stock=Product.in_stock - new.count)
            .returning(Product.in_stock)
        )
        if left is None:  # found last on purpose: order and event are written by now, and the rollback takes both
            raise HTTPException(409, f"not enough of {new.product} in stock")
    return {"id": order.id}
